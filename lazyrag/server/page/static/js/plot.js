// Series over time, by uPlot: on the health page alone. The numbers are in the page as a table, too.
export function plot() {
  const box = document.querySelector("[data-plot]");
  const script = document.createElement("script");
  script.src = new URL("../vendor/uPlot.iife.min.js", import.meta.url).href;
  script.onload = () => {
    const rows = box.dataset.plot.split(";").map((row) => row.split(","));
    const data = [rows.map(([day]) => Date.parse(`${day}T00:00`) / 1000), rows.map((row) => +row[1]), rows.map((row) => +row[2])];
    const labels = box.dataset.labels.split("|");
    const lang = document.documentElement.lang;
    const day = new Intl.DateTimeFormat(lang, { month: "short", day: "numeric" });
    let chart = null;
    const draw = () => {
      const style = getComputedStyle(document.documentElement);
      const probe = (name) => { box.style.color = `var(${name})`; const found = getComputedStyle(box).color; box.style.color = ""; return found; };
      const [ink, line, done, failed] = ["--ink-3", "--line", "--bar-1", "--err"].map(probe);
      const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: `12px ${style.getPropertyValue("--latin")}, sans-serif` };
      const bars = window.uPlot.paths.bars({ size: [0.55, 28] });
      chart?.destroy();
      chart = new window.uPlot({
        width: box.clientWidth, height: 180, cursor: { y: false, points: { show: false } }, legend: { live: true },
        scales: { y: { range: (u, min, max) => [0, Math.max(4, max * 1.1)] }, x: { range: (u, min, max) => [min - 43200, max + 43200] } },
        axes: [{ ...axis, grid: { show: false }, values: (u, values) => values.map((value) => day.format(value * 1000)) },
          { ...axis, size: 36, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] }],
        series: [{ value: (u, value) => (value === null ? "–" : day.format(value * 1000)), label: "" },
          ...[done, failed].map((fill, at) => ({ label: labels[at], fill, stroke: fill, width: 0, paths: bars, points: { show: false } }))],
      }, data, box);
    };
    draw();
    new ResizeObserver(() => { if (chart.width !== box.clientWidth) chart.setSize({ width: box.clientWidth, height: 180 }); }).observe(box);
    const redraw = () => requestAnimationFrame(draw);
    new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  };
  document.head.append(script);
}
