// Package corpus provides real programs to trace: Lua, SQLite's shell, zstd and Redis, built from Debian's source
// packages.
//
//	built, err := corpus.Build(ctx, corpus.SQLite, corpus.Flags{
//		CC: "gcc", C: []string{"-O2", "-g", "-pg", "-mfentry"}, LD: []string{"-pg"},
//	})
//	exec.Command(built.Program, "test.db")
//
// Sources and results live in a cache directory: $XDG_CACHE_HOME/fentry-tests (or ~/.cache/fentry-tests). Sources are
// fetched once with apt-get, which checks their signatures, from a private configuration: neither root nor an entry
// in the system's source list is needed. Each set of flags is built once. Several processes may use the cache at the
// same time.
//
// What is missing on the machine is a *Missing error, which names the package to install.
package corpus
