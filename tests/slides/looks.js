// Everything that is wrong with the looks of a deck, all steps shown, in the slide's own pixels.
() => {
  const wrong = [];
  const inside = (r, box, slack) => r.left >= box.left - slack && r.right <= box.right + slack
    && r.top >= box.top - slack && r.bottom <= box.bottom + slack;
  [...document.querySelectorAll('.slides > section')].forEach((slide, index) => {
    Reveal.slide(index);
    slide.querySelectorAll('.fragment').forEach(f => f.classList.add('visible'));
    const box = slide.getBoundingClientRect(), scale = box.width / Reveal.getConfig().width;
    const say = (what, e) => wrong.push([slide.id, what, e.tagName, e.textContent.trim().slice(0, 40)].join(' '));
    const shown = e => { const r = e.getBoundingClientRect(); return r.width && r.height ? r : null; };
    const room = {left: box.left + 20 * scale, right: box.right - 20 * scale, top: box.top,
                  bottom: box.bottom - 26 * scale};
    for (const e of slide.querySelectorAll('.sheet *')) {
      const r = shown(e);
      if (r && !inside(r, room, 1)) say('leaves the slide', e);
    }
    for (const row of slide.querySelectorAll('.sheet > .row, .column > .row')) {
      for (const e of row.querySelectorAll('*')) {
        const r = shown(e);
        if (r && !inside(r, row.getBoundingClientRect(), 4 * scale)) { say('leaves its place', e); break; }
      }
    }
    for (const image of slide.querySelectorAll('img')) {
      const ratio = image.getBoundingClientRect().width / scale / image.naturalWidth;
      if (!image.complete || !image.naturalWidth) say('broken', image);
      if (!(ratio >= 0.62)) say('too small to read, ' + ratio.toFixed(2), image.parentNode);
      if (image.alt.length < 20) say('no text alternative', image.parentNode);
    }
    for (const e of slide.querySelectorAll('.sheet *')) {
      const text = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
      if (text && !e.closest('math') && parseFloat(getComputedStyle(e).fontSize) < 18) say('small type', e);
    }
    for (const e of slide.querySelectorAll('math')) if (shown(e) === null) say('empty', e);
    if (!Reveal.getSlideNotes(slide)) say('no notes', slide);
  });
  return wrong;
}
