// Returns names of the values of a protobuf enum. A peer of another version may send a number that this build does not
// know. Such a number becomes "unknown (9)". (Protobuf's own X_Name returns an empty string for it.)
#ifndef CAIRN_COMMON_BASE_ENUM_TEXT_H_
#define CAIRN_COMMON_BASE_ENUM_TEXT_H_

#include <string>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/generated_enum_reflection.h"

namespace cairn {

// Returns the name in the .proto file, for example "COMMITTED".
std::string EnumName(const google::protobuf::EnumDescriptor& descriptor, int number);

template <typename Enum>
std::string EnumName(Enum value) {
  return EnumName(*google::protobuf::GetEnumDescriptor<Enum>(), static_cast<int>(value));
}

// Returns the name in the form for people, in lower case, without the name of the enum and with '-' between words: the
// value IO_PATH_DIRECT of IoPath is "direct", and TRANSPORT_SHARED_MEMORY of Transport is "shared-memory".
std::string EnumText(const google::protobuf::EnumDescriptor& descriptor, int number);

template <typename Enum>
std::string EnumText(Enum value) {
  return EnumText(*google::protobuf::GetEnumDescriptor<Enum>(), static_cast<int>(value));
}

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_ENUM_TEXT_H_
