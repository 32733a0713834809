"""The look of the report: its colours in light and dark, large and small screens."""

STYLE = """
:root{--paper:#fbfbf9;--ink:#1c2330;--soft:#667085;--rule:#e3e5ea;--card:#fff;--main:#1f6f8b;--alone:#c98a2b;
  --hit:#c23b4b;
--good:#2c7a4b;--bad:#b3261e}
@media (prefers-color-scheme:dark){
:root{--paper:#12161d;--ink:#e8ebf0;--soft:#98a2b3;--rule:#2a313d;--card:#1a202a;
--main:#5cc1dd;--alone:#e5b567;--hit:#ff7b86;--good:#6fcf97;--bad:#ff8a80}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,sans-serif}
main{max-width:1080px;margin:0 auto;padding:2.2rem 1.1rem 3rem}
header{margin-bottom:1.6rem}
.kicker{color:var(--soft);margin:0;font-size:.9rem}
h1{font-size:2.1rem;line-height:1.2;margin:.2rem 0 .6rem;letter-spacing:-.01em}
h2{font-size:1.3rem;margin:2.6rem 0 .5rem}
h3{font-size:1rem;margin:1.4rem 0 .5rem}
.unit{color:var(--soft);font-weight:400}
p{max-width:46rem;margin:.3rem 0 .9rem}
.lead{font-size:1.08rem}
.badge{display:inline-block;width:2.1rem;height:2.1rem;line-height:2.1rem;text-align:center;border-radius:50%;
  color:#fff;font-size:1.2rem;vertical-align:.2rem}
.badge.good{background:#2c7a4b}
.badge.bad{background:#b3261e}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(170px,1fr));gap:.7rem}
.tiles div{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:.8rem .9rem;display:flex;
  flex-direction:column}
.tiles b{font-size:1.45rem;font-weight:650;letter-spacing:-.01em;font-variant-numeric:tabular-nums;white-space:nowrap}
.tiles small{color:var(--soft)}
ul.checks,ul.plain{list-style:none;padding:0;margin:0}
ul.checks li{padding:.35rem 0 .35rem 1.8rem;position:relative;border-bottom:1px solid var(--rule)}
ul.checks li:before{position:absolute;left:.2rem;font-weight:700}
li.good:before{content:"✓";color:var(--good)}
li.bad:before,li.note:before{content:"✗";color:var(--bad)}
li.note:before{content:"!"}
ul.plain li{margin:.5rem 0;max-width:52rem}
.maps{display:grid;grid-template-columns:repeat(3,1fr);gap:.9rem}
figure{margin:0;min-width:0}
.map{position:relative;line-height:0}
.map img{width:100%;border-radius:6px}
.stations{position:absolute;inset:0;width:100%;height:100%}
.stations path{stroke:#111;stroke-opacity:.55;stroke-width:2;stroke-linecap:round;vector-effect:non-scaling-stroke;
  fill:none}
.scale{height:7px;border-radius:4px;margin-top:.45rem}
.ends{display:flex;justify-content:space-between;font-size:.78rem;color:var(--soft);font-variant-numeric:tabular-nums}
figcaption{font-size:.88rem;color:var(--soft)}
figcaption b{color:var(--ink)}
svg{width:100%;height:auto;display:block}
svg text{fill:var(--ink);font:500 15px system-ui,sans-serif}
svg .small{font-size:12px;fill:var(--soft)}
svg .end{text-anchor:end}
svg .mid{text-anchor:middle}
.rule{stroke:var(--rule);stroke-width:1}
.line{fill:none;stroke-width:2;stroke-linejoin:round}
.line.main{stroke:var(--main)}
.line.alone{stroke:var(--alone);stroke-dasharray:5 4}
.area{fill:var(--main);fill-opacity:.18}
.dots{fill:none;stroke-linecap:round;stroke-width:6;stroke-opacity:.55}
.dots.main{stroke:var(--main)}
.dots.hit{stroke:var(--hit)}
.mark{stroke-width:1.5;stroke-dasharray:4 3}
.mark.hit{stroke:var(--hit)}
.mark.limit{stroke:var(--soft)}
svg .small.hit{fill:var(--hit)}
.network{max-width:520px;margin:0 auto}
.flow{fill:none;stroke:var(--main);stroke-opacity:.5;stroke-linecap:round}
.flow.hit{stroke:var(--hit)}
.head{fill:var(--main)}
.head.hit{fill:var(--hit)}
.broker{fill:var(--card);stroke:var(--main);stroke-width:2.5}
.broker.hit{stroke:var(--hit)}
.client{fill:var(--alone)}
.leash{stroke:var(--rule);stroke-width:1.5}
.two{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:1.5rem;align-items:center}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.34rem .5rem;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}
th:first-child,.left{text-align:left}
thead th{color:var(--soft);font-weight:500}
tbody th{font-weight:550}
tr.hit th:first-child{color:var(--hit)}
.bars{margin:.6rem 0 1.2rem;max-width:46rem}
.bars div{margin:.5rem 0;font-size:.92rem}
.bars span{display:block;height:16px;border-radius:4px;margin-bottom:.15rem}
.bars .main{background:var(--main)}
.bars .alone{background:var(--alone)}
.legend{font-size:.85rem;color:var(--soft)}
.legend i{display:inline-block;width:11px;height:11px;border-radius:50%;margin:0 .25rem 0 .7rem;
  background:var(--main)}
.legend i:first-child{margin-left:0}
.legend i.alone{background:var(--alone)}
.legend i.hit{background:var(--hit)}
details{margin-top:1rem}
summary{cursor:pointer;color:var(--soft)}
footer{margin-top:3rem;color:var(--soft);font-size:.85rem}
@media (max-width:760px){.maps,.two{grid-template-columns:1fr}
h1{font-size:1.6rem}
.tiles{grid-template-columns:1fr 1fr}
.tiles b{font-size:1.15rem;white-space:normal}}
"""
