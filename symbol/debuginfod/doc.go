// Package debuginfod asks debuginfod servers for the separate debug files of images.
//
//	client := debuginfod.FromEnv(os.LookupEnv) // nil unless DEBUGINFOD_URLS names servers
//	path, err := client.Find(ctx, buildID)
//
// The protocol and the environment variables are those of elfutils' debuginfod (its manual pages debuginfod(8) and
// debuginfod_find_debuginfo(3)), and so is the cache: what another client has downloaded is not downloaded again. Only
// build-ids are sent, and only to the servers that the user has named.
//
// # Security
//
// Servers are trusted no further than the file that was asked for: it must be an ELF file with that build-id, of at
// most MaxSize bytes, and must arrive within the time limits. Readers treat it as malformed until they know better.
package debuginfod
