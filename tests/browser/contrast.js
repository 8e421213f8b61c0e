// Every visible text of the top layer (or the page) below 4.5:1, as [text, ratio].
() => {
  const channels = (color) => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3]));
  const background = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) layers.push(channels(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const root = document.querySelector("dialog[open]") ?? document.body;
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const weak = [];
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim();
    const node = walker.currentNode.parentElement;
    const closed = node.closest("dialog:not([open]), .hidden, .skip, option");
    if (!text || closed || !node.checkVisibility() || node.closest(":disabled")) continue;
    // Events that are over are dimmed on the timeline; the list below has them in full.
    if (node.closest(".pin")) continue;
    const behind = background(node);
    const front = over(channels(getComputedStyle(node).color), behind);
    const found = ratio(luminance(front), luminance(behind));
    if (found < 4.5) weak.push([text.slice(0, 40), Number(found.toFixed(2))]);
  }
  return weak;
}
