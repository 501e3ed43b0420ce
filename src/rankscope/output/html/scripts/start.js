// The other scripts begin when the words are painted: what they do before that would only delay it.
(() => {
  let begun = false;
  const begin = () => {
    if (begun) return;
    begun = true;
    for (const waiting of document.querySelectorAll('script[data-type]')) {
      const script = document.createElement('script');
      script.type = waiting.dataset.type;
      script.textContent = waiting.textContent;
      waiting.replaceWith(script);
    }
  };
  new PerformanceObserver(begin).observe({ type: 'paint', buffered: true });
  setTimeout(begin, 1000); // a tab in the background is not painted
})();
