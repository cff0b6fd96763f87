// Programs and texts of models: coloured pieces become spans, each of them text alone.

function codeBlock(pieces, label, errorLine) {
  const body = element("code", {});
  let line = null;
  let number = 0;
  const begin = () => {
    number += 1;
    line = element("span", { class: number === errorLine ? "line wrong" : "line", "data-line": number });
    body.append(line);
  };
  begin();
  for (let at = 0; at < pieces.length; at += 2) {
    pieces[at + 1].split("\n").forEach((text, part) => {
      if (part > 0) {
        line.append("\n");
        begin();
      }
      if (text) line.append(pieces[at] ? element("span", { class: `t-${pieces[at]}` }, text) : text);
    });
  }
  return element("pre", { class: "code", tabindex: "0", role: "group", "aria-label": label }, body);
}

const plainCode = (pieces) => pieces.filter((_, at) => at % 2).join("");

function textBlock(text, label) {
  return element("pre", { class: "feedback", tabindex: "0", role: "group", "aria-label": label }, text);
}
