// Runs before the first paint: the theme that was chosen, so that nothing flashes.
'use strict';
(() => {
  let theme = 'auto';
  try {
    theme = localStorage.getItem('shardline.theme') || 'auto';
  } catch {
    // Without storage every visit is the first.
  }
  document.documentElement.dataset.theme = ['light', 'dark'].includes(theme) ? theme : 'auto';
})();
