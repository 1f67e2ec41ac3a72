for (const svg of document.querySelectorAll("svg.timeline")) {
  const whole = svg.viewBox.baseVal.width;
  const box = svg.viewBox.baseVal;
  const selected = document.createElement("p");
  selected.className = "selected";
  svg.after(selected);
  const perPixel = () => box.width / svg.clientWidth;
  const keep = () => { box.x = Math.max(0, Math.min(box.x, whole - box.width)); };
  svg.addEventListener("wheel", (event) => {
    event.preventDefault();
    const at = box.x + event.offsetX * perPixel();
    const width = Math.min(whole, Math.max(10, box.width * (event.deltaY < 0 ? 0.8 : 1.25)));
    box.x = at - (at - box.x) * width / box.width;
    box.width = width;
    keep();
  }, { passive: false });
  let from = null;
  svg.addEventListener("pointerdown", (event) => { from = event.clientX; svg.setPointerCapture(event.pointerId); });
  svg.addEventListener("pointerup", () => { from = null; });
  svg.addEventListener("pointermove", (event) => {
    if (from === null) return;
    box.x -= (event.clientX - from) * perPixel();
    from = event.clientX;
    keep();
  });
  svg.addEventListener("pointerdown", (event) => {
    const title = event.target.querySelector("title");
    selected.textContent = title ? title.textContent : "";
  });
}
