package record

import (
	"strings"

	"github.com/fentry-dev/fentry/symbol"
)

// nameForms are the forms a function's name is matched in, made when they are asked for: most names are decided by the
// raw one, and demangling is slow.
type nameForms struct {
	raw   string
	forms []string
	done  bool
}

// get returns the k-th form. Forms can repeat.
func (n *nameForms) get(k int) (string, bool) {
	if k == 0 {
		return n.raw, true
	}
	if !n.done {
		n.done = true
		if i := cloneSuffix(n.raw); i > 0 {
			n.forms = append(n.forms, n.raw[:i])
		}
		n.forms = append(n.forms, symbol.DemangleForms(n.raw)...)
	}
	if k-1 < len(n.forms) {
		return n.forms[k-1], true
	}
	return "", false
}

// cloneMarks begin what compilers append to the names of functions they have specialised, split or made local.
var cloneMarks = []string{".constprop.", ".isra.", ".part.", ".lto_priv.", ".llvm.", ".localalias", ".resolver"}

// cloneSuffix returns where the first such suffix begins, 0 when the name has none.
func cloneSuffix(name string) int {
	first := 0
	for _, m := range cloneMarks {
		if i := strings.Index(name, m); i > 0 && (first == 0 || i < first) {
			first = i
		}
	}
	return first
}
