"""Text and labels for the lessons, and the batches made of them.

    from course_lib import data
    documents = data.corpus("world")            # or "docs", a file or folder, "hub:NAME"
    examples = data.task("world/sentiment")     # or a folder in a published format
"""
