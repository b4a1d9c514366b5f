/* On a phone, mermaid would shrink a diagram to the width of the screen, and its text with it. There, a diagram keeps its
   size and scrolls (diagrams.css). */
if (window.matchMedia("(max-width: 44.984375em)").matches) {
  const initialize = mermaid.initialize;
  mermaid.initialize = (options) =>
    initialize({
      ...options,
      flowchart: {...options.flowchart, useMaxWidth: false},
      sequence: {...options.sequence, useMaxWidth: false},
    });
}
