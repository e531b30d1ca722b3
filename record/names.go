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
	typed string // the signature with the type that is returned, which only a pattern that is a whole name is compared with
	done  bool
}

// get returns the k-th form. Forms can repeat.
func (n *nameForms) get(k int) (string, bool) {
	if k == 0 {
		return n.raw, true
	}
	if n.make(); k-1 < len(n.forms) {
		return n.forms[k-1], true
	}
	return "", false
}

// all yields all forms that a whole name can be.
func (n *nameForms) all(yield func(string) bool) {
	for k := 0; ; k++ {
		form, ok := n.get(k)
		if !ok {
			break
		}
		if !yield(form) {
			return
		}
	}
	if n.typed != "" {
		yield(n.typed)
	}
}

func (n *nameForms) make() {
	if n.done {
		return
	}
	n.done = true
	forms, typed := symbol.DemangleForms(n.raw)
	if i := cloneSuffix(n.raw); i > 0 {
		n.forms = append(n.forms, n.raw[:i])
	}
	n.forms, n.typed = append(n.forms, forms...), typed
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
