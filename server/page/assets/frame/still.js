// Shows an HTML output that it takes from the page. A policy of the frame keeps a document from loading what it names,
// but not from navigating, and not from making the browser look up a host's name: frames, links that are prefetched,
// and addresses in links do so without a click. So lists say which elements, attributes and styles stay. The document
// is parsed without a window, where nothing is loaded, cleaned as a tree, and never written as text again.
"use strict";

(() => {
  const words = (text) => new Set(text.trim().split(/\s+/));
  const elements = words(`body a abbr address article aside b bdi bdo big blockquote br caption center cite code col colgroup dd del details dfn div
    dl dt em figcaption figure font footer h1 h2 h3 h4 h5 h6 header hr i img input ins kbd label li main mark nav ol p pre q s samp section small
    span strike strong sub summary sup table tbody td tfoot th thead time tr tt u ul var wbr audio video source
    svg g defs symbol title desc path rect circle ellipse line polyline polygon text tspan lineargradient radialgradient stop clippath mask pattern
    marker use image`);
  const gone = words(`script style template iframe frame frameset noframes object embed applet param noscript noembed title head textarea select
    option datalist xmp plaintext math foreignobject`);
  const texts = words(`class id title alt value for headers`);
  const attributes = words(`width height colspan rowspan border align valign bgcolor color face size start reversed open
    scope span cellpadding cellspacing rules frame nowrap dir lang datetime role type checked disabled controls loop
    viewbox preserveaspectratio d x y x1 y1 x2 y2 cx cy r rx ry fx fy dx dy points transform rotate textlength lengthadjust pathlength version
    fill fill-opacity fill-rule stroke stroke-width stroke-opacity stroke-linecap stroke-linejoin stroke-miterlimit stroke-dasharray
    stroke-dashoffset opacity color-interpolation font-family font-size font-weight font-style text-anchor dominant-baseline alignment-baseline
    baseline-shift letter-spacing text-decoration clip-path clip-rule mask marker-start marker-mid marker-end offset stop-color stop-opacity
    gradientunits gradienttransform spreadmethod patternunits patterncontentunits patterntransform clippathunits maskunits maskcontentunits
    markerwidth markerheight markerunits refx refy orient vector-effect shape-rendering text-rendering visibility display overflow`);
  const functions = words(`rgb rgba hsl hsla hwb lab lch oklab oklch color color-mix light-dark calc min max clamp abs sign round mod rem var env
    linear-gradient radial-gradient conic-gradient repeating-linear-gradient repeating-radial-gradient repeating-conic-gradient
    translate translatex translatey translatez translate3d scale scalex scaley scalez rotate rotatex rotatey rotatez skew skewx skewy matrix
    repeat minmax fit-content cubic-bezier steps linear counter counters inset circle ellipse polygon
    blur brightness contrast grayscale invert opacity saturate sepia drop-shadow`);
  const media = /^data:(image\/(png|jpeg|gif|webp|avif|bmp|svg\+xml)|audio\/(wav|mpeg|ogg|mp4)|video\/(mp4|webm|ogg))[;,]/i;
  const local = /^#[\w.:-]*$/;

  // plain reports whether a value of CSS names nothing outside of the document. A backslash could disguise a function.
  const plain = (value) => !/\\|\/\*/.test(value) &&
    [...value.replace(/(?<![\w-])url\(\s*(["']?)#[\w.:-]*\1\s*\)/gi, " ").matchAll(/([\w-]*)\(/g)].every((m) => m[1] === "" || functions.has(m[1].toLowerCase()));
  // A shorthand with var() is only in the text of the whole: the values of its longhands are empty.
  const cleanStyle = (style) => {
    for (const name of [...style]) if (!plain(style.getPropertyValue(name))) style.removeProperty(name);
    if (!plain(style.cssText)) style.cssText = "";
  };
  const cleanRules = (sheet) => {
    for (let i = sheet.cssRules.length - 1; i >= 0; i--) {
      const rule = sheet.cssRules[i];
      if (rule instanceof CSSStyleRule) cleanStyle(rule.style);
      else if (!(rule instanceof CSSMediaRule)) {
        sheet.deleteRule(i);
        continue;
      }
      if (rule.cssRules) cleanRules(rule);
    }
  };
  const sheetOf = (text) => {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(text); // leaves @import out
    cleanRules(sheet);
    return sheet;
  };

  const keeps = (e, name, value) => {
    if (name === "style") return true;
    if (name === "src") return media.test(value);
    if (name === "href" || name === "xlink:href") return local.test(value) || (e.localName === "image" && media.test(value));
    return texts.has(name) || (attributes.has(name) && plain(value));
  };
  const clean = (e) => {
    const name = e.localName.toLowerCase(), svg = e.namespaceURI === "http://www.w3.org/2000/svg";
    for (const child of [...e.children]) clean(child);
    if (gone.has(name) && !(svg && name === "title")) return e.remove();
    if (!elements.has(name) || (name === "input" && e.type !== "checkbox" && e.type !== "radio")) return e.replaceWith(...e.childNodes);
    for (const a of [...e.attributes]) if (!keeps(e, a.name.toLowerCase(), a.value)) e.removeAttributeNode(a);
    if (e.style) cleanStyle(e.style);
  };

  addEventListener("message", (m) => {
    if (m.source !== parent) return;
    const made = new DOMParser().parseFromString(String(m.data), "text/html");
    const sheets = [...made.querySelectorAll("style")].map((s) => sheetOf(s.textContent));
    for (const child of [...made.body.children]) clean(child);
    for (const a of [...made.body.attributes]) if (!keeps(made.body, a.name, a.value)) made.body.removeAttributeNode(a);
    cleanStyle(made.body.style);
    document.adoptedStyleSheets = sheets;
    document.body.replaceWith(document.adoptNode(made.body));
    // The page makes the frame as high as the document. A document whose height follows the frame's could grow for ever.
    let told = 0;
    const tell = () => told++ < 5 && parent.postMessage({ height: document.body.getBoundingClientRect().bottom + 16 }, "*");
    new ResizeObserver(tell).observe(document.body);
  }, { once: true });
  parent.postMessage("ready", "*");
})();
