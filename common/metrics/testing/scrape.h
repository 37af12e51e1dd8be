// Asks a MetricsServer for its metrics, as Prometheus does.
#ifndef CAIRN_COMMON_METRICS_TESTING_SCRAPE_H_
#define CAIRN_COMMON_METRICS_TESTING_SCRAPE_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace cairn {

// `address`: "127.0.0.1:port". Returns the whole HTTP response; empty if there was none.
inline std::string Scrape(const std::string& address, const std::string& path = "/metrics") {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string answer;
  const std::string question = "GET " + path + " HTTP/1.0\r\n\r\n";
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0 &&
      write(fd, question.data(), question.size()) == static_cast<ssize_t>(question.size())) {
    char buffer[4096];
    for (ssize_t got; (got = read(fd, buffer, sizeof(buffer))) > 0;) answer.append(buffer, static_cast<size_t>(got));
  }
  close(fd);
  return answer;
}

}  // namespace cairn

#endif  // CAIRN_COMMON_METRICS_TESTING_SCRAPE_H_
