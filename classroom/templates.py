"""HTML from the templates of a room (Jinja): every value is escaped unless it is `Markup`."""

import functools
import html
from collections.abc import Callable
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup


def escape(text: object) -> str:
    """Text safe inside an element or a quoted attribute."""
    return html.escape(str(text), quote=True)


def trusted(text: str) -> "Markup":
    """HTML that is not to be escaped: our own, or a caller's who says that it is HTML."""
    from markupsafe import Markup

    return Markup(text)


@functools.cache
def asset(package: str, name: str) -> str:
    """A text file of a package folder, each line without the space around it."""
    text = (resources.files(package) / "assets" / name).read_text(encoding="utf-8")
    return "\n".join(line.strip() for line in text.splitlines())


@functools.cache
def environment(package: str, clean: Callable[[str], str] = str) -> "jinja2.Environment":
    """The templates of `package`/assets, whose lines are joined; `clean` is run over a value before
    it is escaped.
    """
    import jinja2

    def escaped(value: Any) -> "Markup":
        return value if hasattr(value, "__html__") else trusted(escape(clean(str(value))))

    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: asset(package, name).replace("\n", "")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=escaped,
    )
    made.filters["e"] = escaped
    return made
