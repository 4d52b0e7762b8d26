#pragma once

// From argv to an exit code: finds the command, fills its options (command line over environment
// over --config file), runs it, prints errors as "error: <thing>: <what> (<hint>)".
//
// Threads: the main thread.

namespace deepinfer::apps {

int run_program(int argc, const char* const* argv);

}  // namespace deepinfer::apps
