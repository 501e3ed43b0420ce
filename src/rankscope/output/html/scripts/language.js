// uPlot asks Intl for the browser's language as it loads; some browsers name one that Intl refuses.
try {
  new Intl.NumberFormat(navigator.language);
} catch {
  Object.defineProperty(navigator, 'language', { get: () => 'en-US' });
}
