// Values in the commands that people are told to run.
#ifndef CAIRN_COMMON_BASE_SHELL_WORD_H_
#define CAIRN_COMMON_BASE_SHELL_WORD_H_

#include <string>
#include <string_view>

namespace cairn {

// Returns the value as a POSIX shell takes it for one word: as it is if that is safe, else in single quotes.
std::string ForShell(std::string_view value);

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_SHELL_WORD_H_
