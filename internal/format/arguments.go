package format

import "strings"

// Arguments are those of a process, from a text in which a separator ends each. A process that gives itself a title, such as
// "nginx: worker process", writes it over them and fills the rest with zeros, which are no arguments.
func Arguments(text, separator string) []string {
	if first, rest, _ := strings.Cut(text, separator); strings.Contains(first, " ") && strings.Trim(rest, separator) == "" {
		return []string{first}
	}
	return strings.Split(strings.TrimSuffix(text, separator), separator)
}
