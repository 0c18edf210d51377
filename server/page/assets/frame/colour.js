// Finds the parts of a text that have colours. The highlighter parses what a sandbox wrote, so it runs in a frame with an
// opaque origin, and answers with lengths and names of parts: the page has the text, and takes no markup from here.
"use strict";

(() => {
  // Runs collects what the highlighter finds, in place of HTML: [length, scope], in the order of the text.
  class Runs {
    constructor() {
      this.runs = [];
      this.open = [];
    }

    addText(text) {
      if (text !== "") this.runs.push([text.length, this.open.findLast(Boolean) ?? ""]);
    }

    startScope(scope) {
      this.open.push(scope);
    }

    endScope() {
      this.open.pop();
    }

    openNode(scope) {
      this.startScope(scope);
    }

    closeNode() {
      this.endScope();
    }

    __addSublanguage(other) {
      this.runs.push(...other.runs);
    }

    finalize() {}

    toHTML() {
      return "";
    }
  }

  hljs.configure({ __emitter: Runs });
  const names = { makefile: "makefile", gnumakefile: "makefile", dockerfile: "dockerfile", containerfile: "dockerfile", ".bashrc": "bash", ".profile": "bash", ".bash_profile": "bash" };
  const interpreters = { sh: "bash", bash: "bash", dash: "bash", zsh: "bash", python: "python", node: "javascript", perl: "perl", ruby: "ruby", php: "php", lua: "lua", Rscript: "r" };

  // language returns the language of a file by its name, or by the interpreter in its first line.
  const language = (name, text) => {
    const base = name.split("/").pop().toLowerCase();
    const end = /\.([a-z0-9+]+)$/.exec(base)?.[1];
    const first = /^#!.*?\/(?:env\s+(?:-S\s+)?)?([A-Za-z]+)[\d.]*(?:\s|$)/.exec(text.slice(0, 200));
    return [names[base], end, interpreters[first?.[1]]].find((one) => one && hljs.getLanguage(one));
  };

  addEventListener("message", ({ source, data }) => {
    if (source !== parent) return;
    const kind = language(String(data.name), String(data.text));
    parent.postMessage({ id: data.id, runs: kind ? hljs.highlight(String(data.text), { language: kind, ignoreIllegals: true })._emitter.runs : [] }, "*");
  });
  parent.postMessage("ready", "*");
})();
