// Lets the ranks of a communicator find each other. The unique id is the name of an abstract socket, on which a thread
// of the process that made the id waits for all ranks, and then watches for ranks that end without a word.
#ifndef CAIRN_TESTS_TESTING_STAND_IN_NCCL_RENDEZVOUS_H_
#define CAIRN_TESTS_TESTING_STAND_IN_NCCL_RENDEZVOUS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "gpu/driver/nccl_api.h"
#include "tests/testing/stand_in/nccl/segment.h"

namespace cairn::stand_in {

// Begins to wait for the ranks of the id that it makes. Returns false if it cannot.
bool ServeUniqueId(nccl::UniqueId* id);

struct Hello {
  int32_t ranks = 0;
  int32_t rank = 0;
  int32_t version = 0;
  int32_t device = 0;
  int32_t shared_device = 0;
  char host[64] = {};
};

// A rank's end of the rendezvous.
struct Joined {
  nccl::Result result = nccl::kSuccess;
  std::string error;
  std::shared_ptr<Segment> segment;
  int connection = -1;  // stays open; the caller closes it. If it ends first, the process that made the id has ended.
};

// Connects and says who this is; -1 on failure.
int Connect(const nccl::UniqueId& id, const Hello& hello);
// Takes the answer, which has come.
Joined TakeAnswer(int connection, int ranks);
// Says that this rank leaves on purpose.
void SayGoodbye(int connection);

}  // namespace cairn::stand_in

#endif  // CAIRN_TESTS_TESTING_STAND_IN_NCCL_RENDEZVOUS_H_
