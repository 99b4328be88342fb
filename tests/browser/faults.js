// Returns what a reader would see to be wrong with the page that is open, a sentence each.
() => {
  const found = [];
  const root = document.documentElement;
  const told = (node) => node.textContent.trim().replace(/\s+/g, " ").slice(0, 60);

  if (root.scrollWidth > root.clientWidth) found.push(`the page is wider than the window: ${root.scrollWidth} px`);
  for (const image of document.images) if (!image.naturalWidth) found.push(`an image is missing: ${image.src}`);
  const hidden = (node) => getComputedStyle(node).visibility !== "visible" || Number(getComputedStyle(node).opacity) === 0;
  for (const image of document.images) if (hidden(image)) found.push(`an image is not shown: ${image.src.slice(0, 60)}`);
  for (const shape of document.querySelectorAll("figure .points path, figure .js-line, figure .js-fill")) {
    const { fill, stroke } = getComputedStyle(shape);
    const painted = [fill, stroke].some((name) => !/^(none|transparent|rgba\(.*, 0\))$/.test(name));
    if (hidden(shape) || !painted) found.push(`a series of a chart is not shown: ${shape.getAttribute("class")}`);
  }
  for (const link of document.querySelectorAll('a[href^="#"]')) {
    const id = decodeURIComponent(link.hash.slice(1));
    if (id && !document.getElementById(id)) found.push(`a link names no part of the page: #${id}`);
  }

  // What an element does with text that is larger than its box. A drawing's box is its viewBox.
  const boxes = new Map();
  const boxOf = (element) => {
    if (boxes.has(element)) return boxes.get(element);
    const { overflowX, overflowY, position } = getComputedStyle(element);
    let { left, top, right, bottom } = element.getBoundingClientRect();
    const unseen = right - left < 2; // it is for screen readers
    const drawn = element instanceof SVGSVGElement && element.viewBox.baseVal;
    if (drawn && drawn.width) {
      const { x, y, width, height } = drawn;
      const corner = (x, y) => new DOMPoint(x, y).matrixTransform(element.getScreenCTM());
      [{ x: left, y: top }, { x: right, y: bottom }] = [corner(x, y), corner(x + width, y + height)];
    }
    const does = (overflow) => (drawn || /hidden|clip/.test(overflow) ? "cuts" : /auto|scroll/.test(overflow) ? "scrolls" : "");
    const box = { unseen, left, top, right, bottom, x: does(overflowX), y: does(overflowY), fixed: position === "fixed" };
    boxes.set(element, box);
    return box;
  };
  const cutOff = (text, rect) => {
    let [x, y] = [true, true]; // whether the reader cannot scroll there
    for (let element = text.parentElement; element !== root; element = element.parentElement) {
      const box = boxOf(element);
      if (box.unseen) return false;
      if (x && box.x === "cuts" && (rect.left < box.left - 1 || rect.right > box.right + 1)) return true;
      if (y && box.y === "cuts" && (rect.top < box.top - 4 || rect.bottom > box.bottom + 4)) return true;
      x &&= box.x !== "scrolls";
      y &&= box.y !== "scrolls";
      if (box.fixed) return false;
    }
    return x && (rect.left < -1 || rect.right > root.clientWidth + 1);
  };

  // How far the colours of a text and of what is behind it are apart, from 1 to 21 (WCAG's contrast).
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const colours = new Map();
  const colour = (name) => {
    if (!colours.has(name)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = name;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, alpha] = canvas.getImageData(0, 0, 1, 1).data;
      const linear = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
      colours.set(name, { alpha, light: 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b) });
    }
    return colours.get(name);
  };
  const papers = new Map();
  const behind = (element) => {
    if (!element) return 1;
    if (!papers.has(element)) {
      const paper = colour(getComputedStyle(element).backgroundColor);
      papers.set(element, paper.alpha > 127 ? paper.light : behind(element.parentElement));
    }
    return papers.get(element);
  };
  const contrast = (text) => {
    const style = getComputedStyle(text.parentElement);
    const front = colour(text.parentElement instanceof SVGElement ? style.fill : style.color);
    const [low, high] = [front.light, behind(text.parentElement)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };

  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const shown = { visibilityProperty: true, opacityProperty: true };
    if (!text.data.trim() || !text.parentElement.checkVisibility(shown)) continue;
    range.selectNodeContents(text);
    const rect = range.getBoundingClientRect();
    if (!rect.width || rect.right <= 0) continue; // a drawer that is shut is to the left
    if (cutOff(text, rect)) found.push(`text is cut off: ${told(text)}`);
    if (text.data.trim().length > 1 && contrast(text) < 3) found.push(`text is hard to see: ${told(text)}`);
  }

  // In a drawing of ours, text lies over no other text, and over no edge of a box. Turned text has turned corners.
  const corners = (text) => {
    const { x, y, width, height } = text.getBBox();
    const top = y + height / 4; // above it are only accents
    const points = [[x, top], [x + width, top], [x + width, y + height], [x, y + height]];
    return points.map(([x, y]) => new DOMPoint(x, y).matrixTransform(text.getScreenCTM()));
  };
  const apart = (one, other) =>
    [one, other].some((shape) =>
      shape.some((a, i) => {
        const b = shape[(i + 1) % 4];
        const [mine, theirs] = [one, other].map((points) => points.map((p) => (p.x - a.x) * (a.y - b.y) + (p.y - a.y) * (b.x - a.x)));
        return Math.min(...theirs) >= Math.max(...mine) || Math.min(...mine) >= Math.max(...theirs);
      }),
    );
  for (const drawing of document.querySelectorAll("svg:not(.js-plotly-plot *)")) {
    const texts = [...drawing.querySelectorAll("text")].filter(told).map((text) => [told(text), corners(text)]);
    const rects = [...drawing.querySelectorAll("rect")].map((rect) => rect.getBoundingClientRect());
    texts.forEach(([text, shape], i) => {
      for (const [other, taken] of texts.slice(0, i)) {
        if (!apart(shape, taken)) found.push(`text lies over text: ${other}, ${text}`);
      }
      for (const box of rects) {
        const within = shape.filter((p) => p.x >= box.left && p.x <= box.right && p.y >= box.top && p.y <= box.bottom);
        if (within.length % 4) found.push(`text lies over the edge of a box: ${text}`);
      }
    });
  }
  return found;
}
