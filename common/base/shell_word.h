// Quotes values in commands that Cairn tells people to run.
#ifndef CAIRN_COMMON_BASE_SHELL_WORD_H_
#define CAIRN_COMMON_BASE_SHELL_WORD_H_

#include <string>
#include <string_view>

namespace cairn {

// Returns the value in a form that a POSIX shell reads as one word: unchanged if that is safe, else in single quotes.
std::string ForShell(std::string_view value);

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_SHELL_WORD_H_
