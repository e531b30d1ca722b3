package spec

// Configs are the structures that a patcher fills in and the runtime reads: symbols
// of the runtime's object.
var Configs = []Struct{Config}

// Sizes, magic number and version of the configuration.
const (
	ConfigMagic   = "FENTRYCF"
	ConfigVersion = 1
)

// Config is the symbol fentry_config.
var Config = Struct{"config", "CONFIG", 4096, "the symbol fentry_config, which the patcher fills in", []Field{
	{"MAGIC", 0, "u64", "", "the bytes " + ConfigMagic},
	{"VERSION", 8, "u32", "", "of this structure"},
	{"MODE", 12, "u32", "", "see Modes"},
	{"IMAGE", 16, "u64", "", "image id"},
	{"SITES", 24, "u32", "", "number of ids: ids are 1 to this"},
	{"FLAGS", 28, "u32", "", "see Flags"},
	{"DEPTH", 32, "u32", "", "calls deeper than this are not recorded; 0: no limit"},
	{"POLICY", 36, "u32", "", "what to do when there is no room for events"},
	{"THRESHOLD", 40, "u64", "ns", "shorter calls are not recorded; 0: all are"},
	{"ROOTS", 48, "i64", "bytes", "distance to a bitmap of graph roots by id; 0: none"},
	{"ADDRESS", 56, "u64", "", "of this structure, as linked"},
	{"IDLEN", 128, "u8", "bytes", "length of the build-id"},
	{"ID", 129, "u8[127]", "", "build-id of the image before it was patched"},
	{"SESSION", 256, "char[512]", "", "path of a recorder's pool or trace file"},
	{"DIR", 768, "char[512]", "", "trace directory to start"},
	{"PATH", 1280, "char[1024]", "", "path of the image"},
}}

// Modes are the tracers.
var Modes = []Value{
	{"GRAPH", 0, "function_graph: entries and exits"},
	{"FUNCTION", 1, "function: entries"},
	{"PROFILE", 2, "counts and times of functions, no events"},
}

// Flags are bits of the configuration's FLAGS.
var Flags = []Value{
	{"NO_RECORDER", 1, "never look for a recorder"},
	{"NO_FILE", 2, "never start a trace directory of its own"},
	{"QUIET", 4, "no messages"},
}
