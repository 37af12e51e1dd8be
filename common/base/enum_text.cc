#include "common/base/enum_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace cairn {
namespace {

// Returns the prefix that enum values have by buf's rules: "IO_PATH_" for IoPath.
std::string PrefixOf(const std::string& enum_name) {
  std::string prefix;
  for (const char letter : enum_name) {
    if (absl::ascii_isupper(static_cast<unsigned char>(letter)) && !prefix.empty()) prefix += '_';
    prefix += absl::ascii_toupper(static_cast<unsigned char>(letter));
  }
  return prefix + "_";
}

}  // namespace

std::string EnumName(const google::protobuf::EnumDescriptor& descriptor, int number) {
  const google::protobuf::EnumValueDescriptor* value = descriptor.FindValueByNumber(number);
  return value == nullptr ? absl::StrCat("unknown (", number, ")") : value->name();
}

std::string EnumText(const google::protobuf::EnumDescriptor& descriptor, int number) {
  if (descriptor.FindValueByNumber(number) == nullptr) return EnumName(descriptor, number);
  std::string name = EnumName(descriptor, number);
  // The values of an enum within a message have no prefix, except the unspecified one.
  if (descriptor.containing_type() != nullptr) return absl::AsciiStrToLower(name);
  std::string text = absl::AsciiStrToLower(absl::StripPrefix(name, PrefixOf(descriptor.name())));
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

}  // namespace cairn
