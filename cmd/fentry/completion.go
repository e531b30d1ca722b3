package main

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func newCompletionCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "print a shell completion script",
		Long: `completion prints a script that makes a shell complete fentry's commands,
options, files and, after -F, -N and -G, the names of functions: those of the
program or trace before the cursor, or else of the programs and the trace in the
working directory.`,
		Example: `  . <(fentry completion bash)                      this bash
  fentry completion bash > /etc/bash_completion.d/fentry
  fentry completion zsh  > "${fpath[1]}/_fentry"
  fentry completion fish > ~/.config/fish/completions/fentry.fish`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return bashCompletion(root, a.stdout)
			case "zsh":
				return root.GenZshCompletion(a.stdout)
			case "fish":
				return root.GenFishCompletion(a.stdout, true)
			}
			return usagef(cmd, "no completion for shell %q: bash, zsh or fish", args[0])
		},
	}
}

// bashCompletion writes the script for bash. Cobra's calls two functions of the
// package bash-completion, which need not be installed: without it, completion
// would end in error messages. In their place the script has functions that use
// the package's if it is there.
func bashCompletion(root *cobra.Command, w io.Writer) error {
	var script bytes.Buffer
	if err := root.GenBashCompletionV2(&script, true); err != nil {
		return err
	}
	text := script.Bytes()
	for _, name := range []string{"_get_comp_words_by_ref", "_filedir"} {
		if !bytes.Contains(text, []byte(name)) {
			return fmt.Errorf("the script for bash does not call %s", name)
		}
		text = bytes.ReplaceAll(text, []byte(name), []byte("__fentry"+name))
	}
	_, err := w.Write(append(text, bashWithoutPackage...))
	return err
}

// bashWithoutPackage is what the script needs of bash-completion. bash splits
// words at = and : as well, so these are put together again, as the package does.
const bashWithoutPackage = `
__fentry_get_comp_words_by_ref()
{
    if declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
        _get_comp_words_by_ref "$@"
        return
    fi
    local line=${COMP_LINE:0:COMP_POINT} word blank i joined=
    words=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        blank=${line%%[![:blank:]]*}
        line=${line#"$blank"}
        word=${COMP_WORDS[i]}
        if ((i == COMP_CWORD)); then
            word=$line # what is left of the cursor
        fi
        if [[ $i -gt 0 && -z $blank && ( -n $joined || $word == [=:]* ) ]]; then
            words[${#words[@]}-1]+=$word
        else
            words+=("$word")
        fi
        joined=
        [[ $word == [=:]* ]] && joined=1
        line=${line#"$word"}
    done
    cword=$((${#words[@]} - 1))
    cur=${words[cword]} prev=
    if ((cword > 0)); then
        prev=${words[cword - 1]}
    fi
}

__fentry_filedir()
{
    if declare -F _filedir >/dev/null 2>&1; then
        _filedir "$@"
        return
    fi
    local kind=-f
    [[ ${1-} == -d ]] && kind=-d
    compopt -o filenames 2>/dev/null
    local IFS=$'\n'
    COMPREPLY=($(compgen $kind -- "$cur"))
}
`
