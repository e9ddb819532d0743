// What a training costs by course_lib.analysis.cost.
function draw() {
  var device = data.devices[pick.value], at = {}, ten = {n: 1, d: 1, count: 1, runs: 1};
  for (var name in bars) at[name] = ten[name] ? Math.pow(10, bars[name].value) : +bars[name].value;
  at.count = Math.max(1, Math.round(at.count)); at.runs = Math.max(1, Math.round(at.runs));
  var flops = at.each * at.n * at.d * at.runs, hours = flops / (device.flops * at.share) / 3600;
  var kwh = hours * device.watts / 1000 * at.overhead;
  var values = [flops, hours, hours / at.count / 24, hours * at.price, kwh, kwh * at.grid / 1000,
    flops / (2 * at.n * data.answer)];
  values.forEach(function(value, i) { shown[i].textContent = write(value); });
  var says = {n: write(at.n), d: write(at.d), count: at.count.toLocaleString('en'), runs: at.runs,
    each: at.each.toFixed(1), share: Math.round(100 * at.share) + '%', price: '$' + at.price.toFixed(2),
    overhead: at.overhead.toFixed(2), grid: Math.round(at.grid)};
  root.querySelectorAll('label output').forEach(function(out) { out.textContent = says[out.dataset.name]; });
}
