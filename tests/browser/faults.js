// Returns what a reader would see to be wrong with the page that is open, a sentence each.
() => {
  const found = [];
  const shown = (node) => node.parentElement.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const told = (node) => node.textContent.trim().replace(/\s+/g, " ").slice(0, 60);
  const inner = document.documentElement.clientWidth;

  const page = document.scrollingElement;
  if (page && page.scrollWidth > inner) found.push(`the page is ${page.scrollWidth} px wide, the window ${inner}`);
  for (const image of document.images) if (!image.naturalWidth) found.push(`an image does not load: ${image.src}`);
  for (const link of document.querySelectorAll('a[href^="#"]')) {
    const id = decodeURIComponent(link.hash.slice(1));
    if (id && !document.getElementById(id)) found.push(`a link names no part of the page: #${id}`);
  }

  // Where text may be seen within an element, and in which directions the reader can scroll to the rest.
  const boxes = new Map();
  const boxOf = (element) => {
    if (!boxes.has(element)) boxes.set(element, measured(element));
    return boxes.get(element);
  };
  const measured = (element) => {
    const { overflowX, overflowY, position } = getComputedStyle(element);
    const scrolls = (value) => value === "auto" || value === "scroll";
    const cuts = (value) => value === "hidden" || value === "clip";
    let box = element.getBoundingClientRect();
    if (box.width < 2) return { unseen: true }; // it is for screen readers
    const drawing = element instanceof SVGSVGElement && element.viewBox.baseVal;
    if (drawing && drawing.width) {
      const { x, y, width, height } = drawing;
      const corner = (x, y) => new DOMPoint(x, y).matrixTransform(element.getScreenCTM());
      const [a, b] = [corner(x, y), corner(x + width, y + height)];
      box = new DOMRect(a.x, a.y, b.x - a.x, b.y - a.y);
    }
    return {
      box, fixed: position === "fixed", scrollsX: scrolls(overflowX), scrollsY: scrolls(overflowY),
      cutsX: !!drawing || cuts(overflowX), cutsY: !!drawing || cuts(overflowY),
    };
  };
  const cutOff = (node, rect) => {
    let [x, y] = [true, true];
    for (let element = node.parentElement; element && element !== page; element = element.parentElement) {
      const { unseen, box, fixed, scrollsX, scrollsY, cutsX, cutsY } = boxOf(element);
      if (unseen) return false;
      if (x && cutsX && (rect.left < box.left - 1 || rect.right > box.right + 1)) return true;
      if (y && cutsY && (rect.top < box.top - 4 || rect.bottom > box.bottom + 4)) return true;
      x &&= !scrollsX;
      y &&= !scrollsY;
      if (fixed) return false;
    }
    return x && (rect.left < -1 || rect.right > inner + 1);
  };
  const walker = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!node.data.trim() || !shown(node)) continue;
    range.selectNodeContents(node);
    const rect = range.getBoundingClientRect();
    if (rect.width && cutOff(node, rect)) found.push(`text is cut off: ${told(node)}`);
  }

  // In drawings, text lies over no other text, and over no edge of a box. Turned text has turned corners.
  const corners = (element) => {
    const { x, y, width, height } = element.getBBox();
    const matrix = element.getScreenCTM();
    const points = [[x, y + height / 4], [x + width, y + height / 4], [x + width, y + height], [x, y + height]];
    return points.map(([x, y]) => new DOMPoint(x, y).matrixTransform(matrix));
  };
  const apart = (one, other) => [one, other].some((shape) => shape.some((a, i) => {
    const b = shape[(i + 1) % 4];
    const along = (points) => points.map((p) => (p.x - a.x) * (a.y - b.y) + (p.y - a.y) * (b.x - a.x));
    return Math.min(...along(other)) >= Math.max(...along(one)) || Math.min(...along(one)) >= Math.max(...along(other));
  }));
  for (const svg of document.querySelectorAll("svg")) {
    const texts = [...svg.querySelectorAll("text")].filter((text) => told(text)).map((text) => [text, corners(text)]);
    texts.forEach(([text, shape], i) => {
      for (const [other, taken] of texts.slice(0, i)) {
        if (!apart(shape, taken)) found.push(`text lies over text: ${told(other)} and ${told(text)}`);
      }
      for (const rect of svg.querySelectorAll("rect")) {
        const box = rect.getBoundingClientRect();
        const within = (p) => p.x >= box.left && p.x <= box.right && p.y >= box.top && p.y <= box.bottom;
        const [first, ...rest] = shape.map(within);
        if (rest.some((one) => one !== first)) found.push(`text lies over the edge of a box: ${told(text)}`);
      }
    });
  }
  return found;
}
