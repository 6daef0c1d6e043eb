#!/bin/bash
echo tool
