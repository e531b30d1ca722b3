package spec

import "go/format"

// Files returns what is made from the table: contents by path below the
// repository's root.
func Files() (map[string]string, error) {
	src, err := format.Source([]byte(GoSource()))
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"internal/format/zformat.go": string(src),
		"stub/src/format.h":          TraceHeader(),
		"stub/src/config.h":          ConfigHeader(),
		"docs/format.md":             Markdown(),
	}, nil
}
