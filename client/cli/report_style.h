// The look of the report: light and dark by the reader's choice, a phone's width and paper included.
#pragma once

namespace ridgeline::cli {

inline constexpr char kReportStyle[] = R"css(
:root {
  color-scheme: light dark;
  --paper: #fbfbf9; --card: #ffffff; --ink: #1d2129; --soft: #5b6472; --rule: #dfe2e7; --accent: #0b5cad;
  --good: #1a7f37; --bad: #b3261e; --plain: #6b7280;
  --c0: #0b5cad; --c1: #c2410c; --c2: #15803d; --c3: #7e22ce; --c4: #b91c5c; --c5: #0e7490; --c6: #92650a; --c7: #4b5563;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171c; --card: #1b1f26; --ink: #e7eaf0; --soft: #a2abba; --rule: #333a45; --accent: #7cb7ff;
    --good: #5fd38a; --bad: #ff8f85; --plain: #a2abba;
    --c0: #7cb7ff; --c1: #ff9d66; --c2: #6fd08c; --c3: #c9a0ff; --c4: #ff8bb5; --c5: #5fd0e6; --c6: #e3b85c; --c7: #b6bdc9;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 62rem; background: var(--paper); color: var(--ink);
       font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.25rem; margin: 0 0 .5rem; overflow-wrap: anywhere; }
p { margin: .5rem 0; max-width: 46rem; }
a { color: var(--accent); }
.soft { color: var(--soft); }
section { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 1.25rem; margin: 1.5rem 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.25rem; margin: 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow: auto; max-height: 28rem; border: 1px solid var(--rule); border-radius: 6px; margin: .75rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .7rem; text-align: left; white-space: nowrap; border-bottom: 1px solid var(--rule); vertical-align: top; }
th { position: sticky; top: 0; background: var(--card); color: var(--soft); font-weight: 600; }
td.number, th.number { text-align: right; }
tr:last-child td { border-bottom: 0; }
td.wide { white-space: normal; }
.verdict { font-weight: 600; }
.verdict.good { color: var(--good); } .verdict.bad { color: var(--bad); } .verdict.plain { color: var(--plain); }
figure { margin: 1rem 0 .5rem; } figure > svg { display: block; width: 100%; height: auto; }
svg text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: var(--soft); }
svg .label { font-size: 14px; fill: var(--ink); }
svg .series-label { font-size: 12px; fill: var(--ink); stroke: var(--card); stroke-width: 3px; paint-order: stroke; }
svg .guide-label { font-size: 12px; fill: var(--soft); stroke: var(--card); stroke-width: 3px; paint-order: stroke; }
.grid line { stroke: var(--rule); stroke-width: 1; }
.leader { fill: none; stroke: var(--soft); stroke-width: 1; }
.guide path { fill: none; stroke: var(--ink); stroke-width: 2; } .guide.dashed path { stroke-dasharray: 7 5; stroke-width: 1.5; }
.line { fill: none; stroke: var(--c); stroke-width: 1.75; opacity: .8; }
.point, .point-key { fill: var(--c); stroke: var(--card); stroke-width: 1; }
.s0 { --c: var(--c0); } .s1 { --c: var(--c1); } .s2 { --c: var(--c2); } .s3 { --c: var(--c3); }
.s4 { --c: var(--c4); } .s5 { --c: var(--c5); } .s6 { --c: var(--c6); } .s7 { --c: var(--c7); }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; padding: 0; margin: .25rem 0 0; font-size: .85rem; color: var(--soft); }
.legend svg { width: 1rem; height: 1rem; vertical-align: -.15rem; margin-right: .35rem; }
@media (max-width: 40rem) {
  body { padding: 1.25rem .75rem 3rem; } section { padding: .9rem; }
  .overview td { display: block; border: 0; padding: .1rem 0; } .overview tr { display: block; padding: .5rem 0; border-bottom: 1px solid var(--rule); }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .4rem; }
  svg text { font-size: 19px; } svg .label { font-size: 20px; }
  svg .series-label, svg .guide-label { font-size: 17px; }
}
@media print {
  :root { color-scheme: light; --paper: #fff; --card: #fff; --ink: #000; --soft: #444; --rule: #ccc; --accent: #000;
          --good: #14602a; --bad: #8f1d17; --plain: #444;
          --c0: #0b5cad; --c1: #c2410c; --c2: #15803d; --c3: #7e22ce; --c4: #b91c5c; --c5: #0e7490; --c6: #92650a; --c7: #4b5563; }
  body { max-width: none; padding: 0; font-size: 10pt; } section { border: 0; padding: 0; }
  h2, figure { break-inside: avoid; break-after: avoid; } tr { break-inside: avoid; }
  .scroll { max-height: none; overflow: visible; border: 0; } table { font-size: 7pt; } th { position: static; } th, td { padding: .15rem .4rem; }
}
)css";

}  // namespace ridgeline::cli
