#include "common/process/log.h"

#include <unistd.h>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/printable.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

std::string& Context() {
  static std::string* const context = new std::string();
  return *context;
}

void Append(std::string& line, const LogField& field) {
  absl::StrAppend(&line, " ", field.key, "=");
  bool plain = !field.value.empty();
  for (char c : field.value) plain = plain && c > ' ' && c < 0x7f && c != '"' && c != '=' && c != '\\';
  if (plain) {
    line += field.value;
    return;
  }
  std::string quoted;
  for (char c : field.value) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c == '\n' || c == '\t' ? ' ' : c;
  }
  absl::StrAppend(&line, "\"", Printable(quoted), "\"");
}

std::string TextOf(const LogEvent& event, const std::string& context) {
  constexpr const char* kNames[] = {"info", "warn", "error"};
  std::string text = absl::StrCat(kNames[static_cast<int>(event.level)], " event=", event.event, context);
  for (const LogField& field : event.fields) Append(text, field);
  return text;
}

}  // namespace

LogField::LogField(std::string_view field_key, const absl::Status& status) : key(field_key) {
  const auto reason = ReasonOf(status);
  const std::string name = reason ? std::string(InfoOf(*reason).name) : absl::StatusCodeToString(status.code());
  value = status.ok() ? "OK" : absl::StrCat(name, ": ", status.message());
}

std::string LogEvent::Text() const { return TextOf(*this, ""); }

void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  Log(LogEvent{level, std::string(event), fields});
}

void Log(const LogEvent& event) {
  const std::string line =
      absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", Clock::Real().WallNow(), absl::UTCTimeZone()), " ",
                   TextOf(event, Context()), "\n");
  (void)!write(STDERR_FILENO, line.data(), line.size());
}

void SetLogContext(std::initializer_list<LogField> fields) {
  for (const LogField& field : fields) Append(Context(), field);
}

}  // namespace cairn
