// What leaves the margins of a printed page.
() => [...document.querySelectorAll('.pdf-page')].flatMap(page => {
  const box = page.getBoundingClientRect();
  return [...page.querySelectorAll('.sheet *')].filter(e => {
    const r = e.getBoundingClientRect();
    return r.width && r.height && (r.left < box.left + 20 || r.right > box.right - 20 || r.top < box.top + 20
      || r.bottom > box.bottom - 20);
  }).map(e => page.querySelector('section').id + ' ' + e.tagName + ' ' + e.textContent.trim().slice(0, 30));
})
