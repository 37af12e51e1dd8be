// Notes of a command to the person who gave it, on standard error.
#ifndef CAIRN_CLI_CORPUS_NOTE_H_
#define CAIRN_CLI_CORPUS_NOTE_H_

#include <atomic>
#include <string>
#include <vector>

namespace cairn::cli {

// Prints "note: TEXT" as a line of its own, also where a line of progress stands. `text` is printable.
void PrintNote(const std::string& text);

// Tells which earlier outputs a command is about to replace. A command that is refused replaces nothing, so nothing is
// said before the work has begun.
class ReplacementNote {
 public:
  // Finds those of `paths` that are regular files or objects now. A stream, such as /dev/stdout, is none, wherever it
  // leads. `others` tells of files that go with them: " and the parts behind it".
  explicit ReplacementNote(const std::vector<std::string>& paths, const std::string& others = "");

  // The first call of one of these prints the note, if there is anything to tell. A command that has succeeded calls
  // WorkIsDone, because little work may be done before it is known to have begun. Thread-safe.
  void WorkHasBegun() { Tell("replaces", ", when the new output is complete"); }
  void WorkIsDone() { Tell("replaced", ""); }

 private:
  void Tell(const std::string& verb, const std::string& when);

  std::string replaced_;
  std::atomic<bool> told_{false};
};

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_NOTE_H_
