/*
 * sanitized: whether this is a build with AddressSanitizer or ThreadSanitizer, which is slower and uses memory of its
 * own.
 */
#ifndef WEIR_TESTS_SANITIZED_H
#define WEIR_TESTS_SANITIZED_H

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#endif
