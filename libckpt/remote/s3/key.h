/*
 * s3/key - the access key and the region of requests to S3, found as the AWS tools find them.
 *
 *   AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY, and AWS_SESSION_TOKEN
 *   the profile's (AWS_PROFILE, "default") in AWS_SHARED_CREDENTIALS_FILE, ~/.aws/credentials
 *   the profile's in AWS_CONFIG_FILE, ~/.aws/config, or what its credential_process prints
 *
 * The region is AWS_REGION, AWS_DEFAULT_REGION, the profile's, or us-east-1.  The metadata services
 * of containers and instances are not asked.  Source: botocore 1.40, credentials.py,
 * configprovider.py.
 */
#ifndef CKPT_LIBCKPT_REMOTE_S3_KEY_H
#define CKPT_LIBCKPT_REMOTE_S3_KEY_H

#include <stdbool.h>

#include "libckpt/remote/s3/sigv4.h"

/* *found is false when there is no key: requests are not signed then.  endpoint (of size bytes)
 * gets AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or the profile's endpoint_url, or "".  CKPT_EREFUSED
 * when a credential_process fails. */
int s3_key_find(struct sigv4_key *k, bool *found, char *endpoint, size_t size,
                struct ckpt_err *err);

#endif
