// Package launch starts a program as it would have been started from the process
// that started this one, with a plan applied to it: at its exec stop, or, where
// that cannot be, as a patched copy, or under an emulator.
//
//	l := launch.Launcher{
//		Path: path, Args: args, Env: launch.Environ(),
//		Inherited: launch.ReadInherited(), Memory: m, ...
//	}
//	st, err := l.Launch()
//	defer st.Close()
package launch
