// Writes the log of a coordinator or an agent to standard error, one event a line: "2026-01-31T12:00:00.123Z info
// event=staged rank=3 step=7".
#ifndef CAIRN_COMMON_PROCESS_LOG_H_
#define CAIRN_COMMON_PROCESS_LOG_H_

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cairn {

enum class LogLevel {
  kInfo,   // a change that an operator may want to know
  kWarn,   // a failure that will be retried
  kError,  // a failure that will not be retried
};

struct LogField {
  LogField(std::string_view field_key, std::string_view field_value) : key(field_key), value(field_value) {}
  LogField(std::string_view field_key, const char* field_value) : key(field_key), value(field_value) {}
  LogField(std::string_view field_key, const std::string& field_value) : key(field_key), value(field_value) {}
  // The value is the reason and the text: "NO_SPACE: write /ckpt/...".
  LogField(std::string_view field_key, const absl::Status& status);
  template <typename Number>
  LogField(std::string_view field_key, Number number) : key(field_key), value(absl::StrCat(number)) {}

  std::string key;
  std::string value;
};

// The contents of one line. The pure core makes these, and its shell writes them.
struct LogEvent {
  LogLevel level = LogLevel::kInfo;
  std::string event;
  std::vector<LogField> fields;

  // Returns the line without its time and without the fields of SetLogContext: "info event=staged rank=3 step=7".
  std::string Text() const;
};

// Writes one line by one write(2). Values with blanks, quotes or control characters are quoted. A character that is not
// printable (common/base/printable.h) is written as "\xNN". Thread-safe.
void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});
void Log(const LogEvent& event);
// Adds these fields ("rank=3") to every line from now on. Must be called before the first thread starts.
void SetLogContext(std::initializer_list<LogField> fields);

}  // namespace cairn

#endif  // CAIRN_COMMON_PROCESS_LOG_H_
