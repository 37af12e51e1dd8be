#include "python/native/forked_child.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "common/base/random_id.h"
#include "common/file/unique_fd.h"
#include "gtest/gtest.h"

namespace {

using cairn::UniqueFd;

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return address;
}

struct Connection {
  UniqueFd client, server;
};

class ForkedChildTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(directory_); }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  Connection Connect(const std::string& name) {
    const sockaddr_un address = AddressOf(directory_ + "/" + name);
    const auto* where = reinterpret_cast<const sockaddr*>(&address);
    UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)), client(socket(AF_UNIX, SOCK_STREAM, 0));
    EXPECT_EQ(bind(listener.get(), where, sizeof(address)), 0) << std::strerror(errno);
    EXPECT_EQ(listen(listener.get(), 1), 0);
    EXPECT_EQ(connect(client.get(), where, sizeof(address)), 0);
    return {std::move(client), UniqueFd(accept(listener.get(), nullptr, nullptr))};
  }

  // A path of TempDir() is too long for a socket.
  const std::string directory_ = "/tmp/cairn-forked-" + cairn::RandomToken(6);
};

bool IsConnected(const UniqueFd& descriptor) {
  sockaddr_un peer;
  socklen_t size = sizeof(peer);
  return getpeername(descriptor.get(), reinterpret_cast<sockaddr*>(&peer), &size) == 0;
}

// Returns the status with which a forked child ends that exits with what `look` returns.
template <typename Look>
int StatusOfChild(Look look) {
  const pid_t child = fork();
  if (child == 0) _exit(look());
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(ForkedChildTest, Fork_NamedConnection_IsTheParentsAlone) {
  ASSERT_EQ(cairn_keep_from_children("named.sock"), 0);
  const Connection named = Connect("named.sock"), other = Connect("other.sock"), like = Connect("unnamed.sock");
  ASSERT_EQ(write(named.server.get(), "answer", 6), 6);
  EXPECT_EQ(StatusOfChild([&] {
              char byte;
              if (recv(named.client.get(), &byte, 1, MSG_DONTWAIT) >= 0) return 1;
              if (send(named.client.get(), "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return 2;
              shutdown(named.client.get(), SHUT_RDWR);
              // The number stays taken, so nothing that the child opens is taken for the connection.
              if (const UniqueFd next(dup(0)); next.get() == named.client.get()) return 3;
              return IsConnected(other.client) && IsConnected(like.client) && IsConnected(named.server) ? 0 : 4;
            }),
            0);
  char answer[6];
  EXPECT_EQ(recv(named.client.get(), answer, sizeof(answer), 0), 6);
  EXPECT_EQ(recv(named.server.get(), answer, 1, MSG_DONTWAIT), -1) << "the child has sent a byte";
}

TEST_F(ForkedChildTest, Fork_SocketOfTheSameName_IsKeptIfItIsAnother) {
  const std::string ours = directory_ + "/ours", seen = directory_ + "/seen", others = directory_ + "/others";
  for (const std::string& each : {ours, others}) std::filesystem::create_directory(each);
  std::filesystem::create_directory_symlink(ours, seen);
  ASSERT_EQ(cairn_keep_from_children((seen + "/agent.sock").c_str()), 0);
  const Connection own = Connect("ours/agent.sock"), other = Connect("others/agent.sock");
  EXPECT_EQ(StatusOfChild([&] { return IsConnected(own.client) ? 1 : IsConnected(other.client) ? 0 : 2; }), 0);
  // A socket that is not here may be one that the other side sees in another directory.
  std::filesystem::rename(others, directory_ + "/away");
  EXPECT_EQ(StatusOfChild([&] { return IsConnected(other.client) ? 1 : 0; }), 0);
}

TEST_F(ForkedChildTest, Fork_ManyDescriptors_AllAreSeen) {
  ASSERT_EQ(cairn_keep_from_children("named.sock"), 0);
  const Connection first = Connect("named.sock");
  std::vector<UniqueFd> copies;
  for (int i = 0; i < 500; ++i) copies.emplace_back(dup(first.client.get()));  // entries of several buffers
  ASSERT_TRUE(copies.back().valid());
  EXPECT_EQ(StatusOfChild([&] {
              for (const UniqueFd& each : copies) {
                if (IsConnected(each)) return 1;
              }
              return IsConnected(first.client) ? 2 : 0;
            }),
            0);
  EXPECT_TRUE(IsConnected(copies.back()));
}

TEST_F(ForkedChildTest, Fork_NoDescriptorLeft_IsCutOffAsWell) {
  ASSERT_EQ(cairn_keep_from_children("named.sock"), 0);
  const Connection named = Connect("named.sock");
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlim_t before = std::exchange(limit.rlim_cur, 64);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<UniqueFd> rest;
  do {
    rest.emplace_back(dup(0));
  } while (rest.back().valid());
  EXPECT_EQ(StatusOfChild([&] { return IsConnected(named.client) ? 1 : fcntl(named.client.get(), F_GETFD) < 0; }), 0);
  limit.rlim_cur = before;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST(KeepFromChildrenTest, NamesThatNoSocketHas_AreRefused) {
  EXPECT_EQ(cairn_keep_from_children(""), -1);
  EXPECT_EQ(cairn_keep_from_children(std::string(sizeof(sockaddr_un::sun_path), 'a').c_str()), -1);
  EXPECT_EQ(cairn_keep_from_children(std::string(sizeof(sockaddr_un::sun_path) - 1, 'a').c_str()), 0);
}

}  // namespace
