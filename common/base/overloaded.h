// Makes one function object of several, for std::visit. If none takes one of the variant's types, it does not compile.
#ifndef CAIRN_COMMON_BASE_OVERLOADED_H_
#define CAIRN_COMMON_BASE_OVERLOADED_H_

namespace cairn {

template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_OVERLOADED_H_
