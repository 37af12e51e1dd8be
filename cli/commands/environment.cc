#include "cli/commands/environment.h"

#include <gnu/libc-version.h>
#include <sys/utsname.h>

#include <climits>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/version_text.h"

namespace cairn::cli {
namespace {

constexpr char kUnknown[] = "unknown";
// The command of the wheel (python/_cairn_programs.py) sets it.
constexpr char kPythonVariable[] = "CAIRN_PYTHON";
// Likewise: what another distribution has put in the place of the package or of this command.
constexpr char kReplacedVariable[] = "CAIRN_REPLACED";

// Returns the content of a small file; "" if it cannot be read.
std::string Content(const char* path) {
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

std::string NameOfSystem() {
  const std::string release = Content("/etc/os-release");
  for (absl::string_view line : absl::StrSplit(release, '\n')) {
    if (!absl::ConsumePrefix(&line, "PRETTY_NAME=")) continue;
    if (absl::ConsumePrefix(&line, "\"")) absl::ConsumeSuffix(&line, "\"");
    return std::string(line);
  }
  return "a system without a name";
}

std::string System() {
  utsname kernel = {};
  const std::string running =
      uname(&kernel) == 0 ? absl::StrCat(kernel.sysname, " ", kernel.release, " on ", kernel.machine) : kUnknown;
  return absl::StrCat(NameOfSystem(), ", ", running, ", glibc ", gnu_get_libc_version());
}

// Undoes the escapes of mountinfo, such as \040 for a space.
std::string Unescaped(absl::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size(); ++at) {
    const absl::string_view digits = text.substr(at + 1, 3);
    if (text[at] == '\\' && digits.size() == 3 && digits.find_first_not_of("01234567") == absl::string_view::npos) {
      result += static_cast<char>((digits[0] - '0') * 64 + (digits[1] - '0') * 8 + (digits[2] - '0'));
      at += 3;
    } else {
      result += text[at];
    }
  }
  return result;
}

bool IsBelow(absl::string_view path, absl::string_view directory) {
  if (!absl::ConsumePrefix(&path, directory)) return false;
  return path.empty() || directory == "/" || path.front() == '/';
}

}  // namespace

std::string FileSystemOf(absl::string_view mountinfo, absl::string_view path) {
  std::string found;
  size_t longest = 0;
  for (const absl::string_view line : absl::StrSplit(mountinfo, '\n')) {
    // Number, parent, device, root within it, place, options, any more fields, "-", type.
    const std::vector<absl::string_view> sides = absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    if (sides.size() < 2) continue;
    const std::vector<absl::string_view> fields = absl::StrSplit(sides[0], ' ');
    if (fields.size() < 6) continue;
    const std::string place = Unescaped(fields[4]);
    // The last mount at a place hides the others.
    if (!IsBelow(path, place) || place.size() < longest) continue;
    longest = place.size();
    const std::vector<absl::string_view> kind = absl::StrSplit(sides[1], absl::MaxSplits(' ', 1));
    found = absl::StrCat(kind[0], " (", fields[5], ") at ", place);
  }
  return found;
}

std::string GpuDriverOf(absl::string_view content) {
  const std::vector<absl::string_view> lines = absl::StrSplit(content, absl::MaxSplits('\n', 1));
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024"
  for (const absl::string_view word : absl::StrSplit(lines[0], ' ', absl::SkipEmpty())) {
    const std::vector<absl::string_view> numbers = absl::StrSplit(word, '.');
    int number = 0;
    if (numbers.size() > 1 && absl::SimpleAtoi(numbers[0], &number) && !numbers[1].empty() &&
        absl::ascii_isdigit(static_cast<unsigned char>(numbers[1][0]))) {
      return absl::StrCat("NVIDIA ", word);
    }
  }
  return "";
}

std::vector<Finding> DescribeEnvironment(const std::string& root) {
  std::vector<Finding> findings;
  const auto add = [&findings](const std::string& check, const std::string& text) {
    findings.push_back({Finding::Level::kNote, check, text.empty() ? kUnknown : text, ""});
  };
  add("version", VersionText("cairn"));
  add("system", System());
  const std::string driver = Content("/proc/driver/nvidia/version");
  add("GPU driver", driver.empty() ? "none of NVIDIA is loaded" : GpuDriverOf(driver));
  const char* python = std::getenv(kPythonVariable);
  add("Python", python != nullptr ? python : "unknown, because this is not the command that pip installs");
  if (const char* replaced = std::getenv(kReplacedVariable); replaced != nullptr) {
    findings.push_back({Finding::Level::kWarning, "installation", replaced,
                        "Uninstall what else brings a `cairn`, then run `pip install --force-reinstall --no-deps` with "
                        "the wheel cairn_checkpoint (docs/install.md)."});
  }
  char real[PATH_MAX] = {};
  if (!root.empty() && realpath(root.c_str(), real) != nullptr) {
    add("file system", FileSystemOf(Content("/proc/self/mountinfo"), real));
  }
  return findings;
}

}  // namespace cairn::cli
