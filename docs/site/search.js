// The search reads a leading "-" as "without this word", so that a pasted flag finds nothing.
document.addEventListener(
  "input",
  ({ target }) => {
    if (target.matches(".md-search__input")) {
      const words = target.value.replace(/(^|\s)-+/g, "$1");
      if (words !== target.value) target.value = words;
    }
  },
  true, // before the listeners of the input itself
);
