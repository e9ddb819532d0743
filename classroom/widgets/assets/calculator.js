// What a training takes by course_lib.analysis.cost.
function draw() {
  var device = data.devices[pick.value], share = +bars.share.value;
  var n = Math.pow(10, bars.n.value), d = Math.pow(10, bars.d.value);
  var count = Math.max(1, Math.round(Math.pow(10, bars.count.value)));
  var flops = 6 * n * d, hours = flops / (device.flops * share) / 3600;
  var values = [flops, flops / data.unit, hours / count / 24, hours * device.watts * data.overhead / 1e6, d / n,
    2 * n / 1e9, 16 * n / 1e9, Math.ceil(2 * n / device.memory), Math.ceil(16 * n / device.memory)];
  values.forEach(function(value, i) { shown[i].textContent = i > 6 ? write(Math.max(value, 1)).replace('.0', '')
      : write(value); });
  var says = {n: write(n), d: write(d), count: count.toLocaleString('en'), share: Math.round(100 * share) + '%'};
  root.querySelectorAll('label output').forEach(function(out) { out.textContent = says[out.dataset.name]; });
}
