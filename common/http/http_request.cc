#include "common/http/http_request.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace cairn {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr std::string_view kHeadEnd = "\r\n\r\n";

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// Removes the part of `text` up to and including `end`, and returns it without `end`.
std::string_view Take(std::string_view& text, std::string_view end) {
  const size_t at = text.find(end);
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + end.size());
  return taken;
}

// Returns whether the text is a token of RFC 9110, section 5.6.2.
bool IsToken(std::string_view text) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || kOthers.find(c) != std::string_view::npos;
  });
}

bool IsControl(char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); }

std::optional<int> HexDigit(char c) {
  if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return std::nullopt;
  return c <= '9' ? c - '0' : absl::ascii_tolower(static_cast<unsigned char>(c)) - 'a' + 10;
}

// Returns the percent-decoded path of a request target. Returns nothing if it is no path or holds a control character.
std::optional<std::string> PathOf(std::string_view target) {
  if (!target.starts_with('/')) return std::nullopt;
  target = target.substr(0, target.find_first_of("?#"));
  std::string path;
  for (size_t i = 0; i < target.size(); ++i) {
    char c = target[i];
    if (c == '%') {
      const auto high = i + 2 < target.size() ? HexDigit(target[i + 1]) : std::nullopt;
      const auto low = high.has_value() ? HexDigit(target[i + 2]) : std::nullopt;
      if (!low.has_value()) return std::nullopt;
      c = static_cast<char>(*high * 16 + *low);
      i += 2;
    }
    if (IsControl(c)) return std::nullopt;
    path += c;
  }
  return path;
}

// Reads one header. Returns false if it is malformed, or if a header that `request` stores comes twice.
bool ReadHeader(std::string_view line, HttpRequest& request) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !IsToken(line.substr(0, colon))) return false;
  const absl::string_view name = View(line.substr(0, colon));
  const absl::string_view value = absl::StripAsciiWhitespace(View(line.substr(colon + 1)));
  if (std::any_of(value.begin(), value.end(), [](char c) { return c != '\t' && IsControl(c); })) return false;
  const bool host = absl::EqualsIgnoreCase(name, "Host");
  if (!host && !absl::EqualsIgnoreCase(name, "Authorization")) return true;
  std::string& field = host ? request.host : request.authorization;
  if (!field.empty()) return false;
  field.assign(value.data(), value.size());
  return true;
}

}  // namespace

RequestState ReadRequest(std::string_view bytes, HttpRequest& request) {
  const size_t end = bytes.substr(0, kMaxRequestHead).find(kHeadEnd);
  if (end == std::string_view::npos) {
    return bytes.size() < kMaxRequestHead ? RequestState::kIncomplete : RequestState::kTooLong;
  }
  std::string_view head = bytes.substr(0, end);
  std::string_view first = Take(head, kLineEnd);
  request = {};
  const std::string_view method = Take(first, " "), target = Take(first, " ");
  if (!IsToken(method) || (first != "HTTP/1.1" && first != "HTTP/1.0")) return RequestState::kMalformed;
  std::optional<std::string> path = PathOf(target);
  if (!path.has_value()) return RequestState::kMalformed;
  request.method = std::string(method);
  request.path = *std::move(path);
  while (!head.empty()) {
    if (!ReadHeader(Take(head, kLineEnd), request)) return RequestState::kMalformed;
  }
  return RequestState::kComplete;
}

}  // namespace cairn
