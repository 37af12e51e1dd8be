// Tells the user which earlier outputs a command is about to replace.
#ifndef CAIRN_CLI_CORPUS_REPLACED_OUTPUT_H_
#define CAIRN_CLI_CORPUS_REPLACED_OUTPUT_H_

#include <string>
#include <vector>

namespace cairn::cli {

// Prints a note to standard error that names those of `paths` that are regular files or objects. Prints nothing if
// there is none. A stream, such as /dev/stdout, is none, wherever it leads.
void NoteReplaced(const std::vector<std::string>& paths);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_REPLACED_OUTPUT_H_
