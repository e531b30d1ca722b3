package main

import "github.com/spf13/cobra"

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
				return root.GenBashCompletionV2(a.stdout, true)
			case "zsh":
				return root.GenZshCompletion(a.stdout)
			case "fish":
				return root.GenFishCompletion(a.stdout, true)
			}
			return usagef(cmd, "no completion for shell %q: bash, zsh or fish", args[0])
		},
	}
}
