package jupyter

import (
	"slices"
	"strings"

	"golang.org/x/net/html"

	"demesne/internal/lazy"
)

// macros are the LaTeX commands that only draw mathematics. Others link, load, set attributes of HTML, or define commands
// under new names, which a list of what is forbidden would not know.
var macros = strings.Fields(`
	alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa varkappa lambda mu nu xi omicron pi varpi rho varrho sigma
	varsigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega digamma aleph beth gimel daleth
	hbar hslash ell wp Re Im imath jmath eth partial nabla infty emptyset varnothing prime backprime forall exists nexists top bot angle
	measuredangle triangle square blacksquare Box Diamond lozenge bigstar clubsuit diamondsuit heartsuit spadesuit flat natural sharp surd
	neg lnot degree complement mho Bbbk circledS
	pm mp times div cdot cdotp ast star circ bullet cap cup uplus sqcap sqcup vee wedge lor land veebar barwedge setminus smallsetminus wr
	diamond bigtriangleup bigtriangledown triangleleft triangleright oplus ominus otimes oslash odot bigcirc dagger ddagger amalg dotplus
	ltimes rtimes boxplus boxminus boxtimes boxdot intercal
	sum prod coprod int iint iiint iiiint oint bigcup bigcap bigsqcup bigvee bigwedge bigodot bigotimes bigoplus biguplus intop smallint
	leq le geq ge ll gg lll ggg neq ne equiv sim simeq approx approxeq cong asymp doteq propto prec succ preceq succeq subset supset subseteq
	supseteq subsetneq supsetneq nsubseteq nsupseteq sqsubset sqsupset sqsubseteq sqsupseteq in notin ni owns vdash dashv models vDash Vdash
	mid nmid parallel nparallel perp smile frown bowtie leqslant geqslant lesssim gtrsim lessgtr gtrless nless ngtr nleq ngeq lhd rhd unlhd
	unrhd therefore because between pitchfork colon coloneqq not
	leftarrow gets rightarrow to leftrightarrow Leftarrow Rightarrow Leftrightarrow longleftarrow longrightarrow longleftrightarrow
	Longleftarrow Longrightarrow Longleftrightarrow implies impliedby iff mapsto longmapsto hookleftarrow hookrightarrow leftharpoonup
	leftharpoondown rightharpoonup rightharpoondown rightleftharpoons leftrightharpoons rightleftarrows uparrow downarrow updownarrow
	Uparrow Downarrow Updownarrow nearrow searrow swarrow nwarrow leadsto rightsquigarrow circlearrowleft circlearrowright xleftarrow xrightarrow
	ldots cdots vdots ddots dots dotsb dotsc dotsi dotsm dotso
	arccos arcsin arctan arg cos cosh cot coth csc deg det dim exp gcd hom inf injlim ker lg lim liminf limsup ln log max min Pr projlim sec
	sin sinh sup tan tanh operatorname bmod pmod mod pod
	hat widehat check tilde widetilde acute grave dot ddot dddot ddddot breve bar vec mathring overline underline overbrace underbrace
	overleftarrow overrightarrow overleftrightarrow underleftarrow underrightarrow overset underset stackrel atop choose brace brack
	frac dfrac tfrac cfrac binom dbinom tbinom sqrt root of over above limits nolimits substack sideset boxed cancel
	left right middle big Big bigg Bigg bigl Bigl biggl Biggl bigr Bigr biggr Biggr bigm Bigm biggm Biggm
	lfloor rfloor lceil rceil langle rangle lbrace rbrace lbrack rbrack lvert rvert lVert rVert vert Vert ulcorner urcorner llcorner lrcorner
	lgroup rgroup lmoustache rmoustache backslash
	mathrm mathit mathbf mathsf mathtt mathcal mathfrak mathbb mathscr mathnormal boldsymbol bm pmb rm it bf sf tt cal frak Bbb scr
	text textrm textit textbf textsf texttt textnormal mbox hbox
	displaystyle textstyle scriptstyle scriptscriptstyle tiny scriptsize small normalsize large Large
	quad qquad thinspace medspace thickspace enspace negthinspace negmedspace negthickspace phantom hphantom vphantom mathstrut strut
	mathord mathop mathbin mathrel mathopen mathclose mathpunct mathinner
	begin end hline hfill hdashline cr newline nonumber notag tag label displaylines
	lt gt And S P copyright pounds yen checkmark maltese LaTeX TeX`)

// command is a command of LaTeX, or an escaped character.
var command = lazy.Regexp{Expr: `(?s)\\([A-Za-z@]+|.)`}

// onlyDraws reports whether a text has no other commands than macros.
func onlyDraws(latex string) bool {
	return !slices.ContainsFunc(command.Get().FindAllString(latex, -1), acts)
}

// acts reports whether a command is not one of macros. An escaped character draws itself, a space, or a new line.
func acts(command string) bool {
	name := command[1:]
	return strings.ContainsAny(name[:1], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ@") && !slices.Contains(macros, name)
}

// inert returns a page's text as HTML. Pages typeset LaTeX in text, up to the next element: an empty one ends what would be
// another command than macros, and a reader does not see it.
func inert(text string) string {
	var b strings.Builder
	last := 0
	for _, at := range command.Get().FindAllStringIndex(text, -1) {
		if acts(text[at[0]:at[1]]) {
			b.WriteString(html.EscapeString(text[last:at[0]+1]) + "<span></span>")
			last = at[0] + 1
		}
	}
	return b.String() + html.EscapeString(text[last:])
}
